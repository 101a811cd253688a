-- The bytes of the records in some buckets: JSON and vectors. What a move brought that may not have ended is left out.
--
-- ARGV: 3 and on, tags.
local arriving = {}
for _, id in ipairs(call('ZRANGE', root .. 'n', 0, -1)) do arriving[id] = true end
local bytes = 0
for at = 3, #ARGV do
  local base = base_of(ARGV[at])
  for _, id in ipairs(call('ZRANGE', base .. 'z', 0, -1)) do
    if not arriving[id] then
      bytes = bytes + call('HSTRLEN', base .. 'j', id) + call('HSTRLEN', base .. 'v', id)
    end
  end
end
return bytes
