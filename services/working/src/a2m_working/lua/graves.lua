-- A page of the ids that were forgotten, by seq then id. Returns {id, seq, id, seq ...}.
--
-- KEYS: 1 the list. ARGV: 3 how many, 4 and 5 the seq and id beyond which to begin, 6 the lowest seq.
local listed, count, seq, last, oldest = KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6]

-- How many lie at or before the position, by halves: many that were forgotten at once have one seq.
local low, high = 0, call('ZCARD', listed)
while low < high do
  local middle = math.floor((low + high) / 2)
  local at = call('ZRANGE', listed, middle, middle, 'WITHSCORES')
  local score = tonumber(at[2])
  if score > seq or score == seq and precedes(last, at[1]) then
    high = middle
  else
    low = middle + 1
  end
end
low = math.max(low, call('ZCOUNT', listed, '-inf', '(' .. oldest))
local found = call('ZRANGE', listed, low, low + count - 1, 'WITHSCORES')
for at = 2, #found, 2 do found[at] = string.format('%.0f', found[at]) end
return found
