-- The order of records: by seq, then by id.
local function precedes(a, b)
  -- Bytes, not the server's locale as `<` would.
  local length = math.min(#a, #b)
  for at = 1, length do
    local x, y = string.byte(a, at), string.byte(b, at)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- How many records lie at or before a position, which may have been deleted meanwhile.
local function offset(z, seq, id, newest)
  local held = call('ZSCORE', z, id)
  if held and tonumber(held) == tonumber(seq) then
    return call(newest and 'ZREVRANK' or 'ZRANK', z, id) + 1
  end
  local before = newest and call('ZCOUNT', z, '(' .. seq, '+inf') or call('ZCOUNT', z, '-inf', '(' .. seq)
  for _, other in ipairs(call('ZRANGEBYSCORE', z, seq, seq)) do
    if newest and precedes(id, other) or not newest and precedes(other, id) then before = before + 1 end
  end
  return before
end
