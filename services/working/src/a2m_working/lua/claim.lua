-- On a Cluster, which bucket an id or key belongs to: a hash of its tag, of how often it was claimed, and of the
-- buckets that may both have its record while it goes from one to the other.
-- KEYS: 1 the claim. Returns {tag, number, parted} as they are afterwards, or {} when there is no claim.
--
-- ARGV: 'look' · 'take' tag · 'move' number tag · 'release' number milliseconds (expires if nobody claimed since)
-- · 'part' journey (adds it) · 'join' journey (takes it away), a journey being `tag>tag`.
local claim, operation = KEYS[1], ARGV[1]
local held = redis.call('HMGET', claim, 'tag', 'number', 'parted')
local tag, number, parted = held[1], held[2], held[3]

if operation == 'take' then
  tag = tag or ARGV[2]
  redis.call('HSET', claim, 'tag', tag)
  number = redis.call('HINCRBY', claim, 'number', 1)
  redis.call('PERSIST', claim)
elseif operation == 'move' and tag and number == ARGV[2] then
  tag = ARGV[3]
  redis.call('HSET', claim, 'tag', tag)
  number = redis.call('HINCRBY', claim, 'number', 1)
elseif operation == 'release' and tag and number == ARGV[2] then
  redis.call('PEXPIRE', claim, ARGV[3])
elseif (operation == 'part' or operation == 'join') and tag then
  local journeys = {}
  for journey in string.gmatch(parted or '', '%S+') do
    if journey ~= ARGV[2] then journeys[#journeys + 1] = journey end
  end
  if operation == 'part' then journeys[#journeys + 1] = ARGV[2] end
  parted = table.concat(journeys, ' ')
  redis.call('HSET', claim, 'parted', parted)
end
return tag and {tag, tostring(number), parted or ''} or {}
