-- On a Cluster, list what was forgotten. KEYS: 1 the list. ARGV: 1 milliseconds that a tombstone lives, then seq and id.
local clock, ids = redis.call('TIME'), {}
for at = 2, #ARGV, 2 do ids[ARGV[at + 1]] = ARGV[at] end
list(KEYS[1], ids, clock[1] * 1000000 + clock[2], ARGV[1])
return 1
