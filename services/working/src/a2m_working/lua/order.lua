-- The order of ids of one seq.
local function precedes(a, b)
  -- Bytes, not the server's locale as `<` would.
  local length = math.min(#a, #b)
  for at = 1, length do
    local x, y = string.byte(a, at), string.byte(b, at)
    if x ~= y then return x < y end
  end
  return #a < #b
end
