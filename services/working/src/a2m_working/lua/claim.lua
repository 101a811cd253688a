-- On a Cluster, which bucket an id or key belongs to: a hash of its tag and of how often it was claimed.
-- KEYS: 1 the claim. Returns {tag, number} as they are afterwards, or {} when there is no claim.
--
-- ARGV: 'look' · 'take' tag · 'move' number tag · 'release' number milliseconds (expires if nobody claimed since).
local claim, operation = KEYS[1], ARGV[1]
local held = redis.call('HMGET', claim, 'tag', 'number')
local tag, number = held[1], held[2]

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
end
return tag and {tag, tostring(number)} or {}
