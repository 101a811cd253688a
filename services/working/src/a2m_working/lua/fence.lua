-- On a Cluster, whether a bucket holds an id ('i') or key ('k'); if not, writers that claimed it for this
-- bucket so far are turned away. Returns {'held', id, owner} or {'free', tombstone or ''}.
--
-- ARGV: 5 'i' or 'k', 6 the id or key, 7 owner, 8 number of the claim, or '' to put no fence.
local kind, name, owner, number = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local found
if kind == 'i' then found = held(name, owner) else found = occupant(name, owner) end
if found then return {'held', found.id, found.bucket.owner} end
if number ~= '' then
  local at = root .. 'x:' .. kind .. ':' .. (kind == 'k' and owner .. '\0' or '') .. name
  local before = tonumber(call('GET', at) or 0)
  -- No request lives as long as an hour.
  call('SET', at, int(math.max(before, number)), 'PX', 3600000)
end
return {'free', kind == 'i' and call('GET', root .. 't:' .. name) or ''}
