-- Where the records of some buckets are in the order, oldest first, without reading them. Returns {id, seq ...}.
--
-- ARGV: 3 how many of each, 4 and 5 the seq and id beyond which to begin ('' for the start), 6 the highest seq,
-- then tags.
local count, seq, last, highest = tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local found = {}
for at = 7, #ARGV do
  local z = base_of(ARGV[at]) .. 'z'
  local first = seq == '' and 0 or offset(z, seq, last, false)
  local past = math.min(first + count, call('ZCOUNT', z, '-inf', highest))
  if first < past then
    local ranked = call('ZRANGE', z, first, past - 1, 'WITHSCORES')
    for place = 1, #ranked, 2 do
      found[#found + 1] = ranked[place]
      found[#found + 1] = string.format('%.0f', ranked[place + 1])
    end
  end
end
return found
