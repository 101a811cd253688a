-- The list of what was forgotten: ids by the seq of their deletion, for as long as tombstones last.
local UNLISTED = 256

-- Add `ids` (seq by id, '' to take one out), and take out a few whose time is over.
local function list(key, ids, now, grave_ms)
  for id, seq in pairs(ids) do
    if seq == '' then redis.call('ZREM', key, id) else redis.call('ZADD', key, seq, id) end
  end
  if next(ids) then
    local oldest = string.format('(%.0f', now - grave_ms * 1000)
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', oldest, 'LIMIT', 0, UNLISTED)) do
      redis.call('ZREM', key, id)
    end
    redis.call('PEXPIRE', key, grave_ms)
  end
end
