-- Buckets of a registry, by pages. Returns {last tag of the page, {tag, owner, session, records, first seq, last seq} ...}.
--
-- ARGV: 3 owner, or '' for every owner's, 4 the tag beyond which to begin ('' for the start), 5 how many,
-- 6 '1' for the tags alone.
local registry = ARGV[3] == '' and root .. 'b' or root .. 'b:' .. ARGV[3]
local start = ARGV[4] == '' and '-' or '(' .. ARGV[4]
local tags = call('ZRANGEBYLEX', registry, start, '+', 'LIMIT', 0, ARGV[5])
local listed = {#tags == tonumber(ARGV[5]) and tags[#tags] or ''}
for _, tag in ipairs(tags) do
  if ARGV[6] == '1' then
    listed[#listed + 1] = tag
  else
    local base = base_of(tag)
    local meta = call('HMGET', base .. 'm', 'owner', 'session')
    local first = call('ZRANGE', base .. 'z', 0, 0)[1]
    local last = call('ZRANGE', base .. 'z', -1, -1)[1]
    if first then
      listed[#listed + 1] = {
        tag, meta[1], meta[2], call('ZCARD', base .. 'z'),
        call('HGET', base .. 's', first), call('HGET', base .. 's', last),
      }
    end
  end
end
return listed
