-- Records by id. Returns rows with the owner first, in the order asked, absent ones left out.
--
-- ARGV: 3 '1' to return vectors and features, then ids.
local whole = ARGV[3] == '1'
local found = {}
for at = 4, #ARGV do
  local tag = call('GET', root .. 'i:' .. ARGV[at])
  if tag then found[#found + 1] = rows_of(base_of(tag), {ARGV[at]}, whole)[1] end
end
return found
