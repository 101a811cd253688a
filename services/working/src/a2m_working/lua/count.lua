-- Add to salience, or count accesses. Returns how many records there were.
--
-- ARGV: 5 owners whose records the caller sees, 6 amount or '', 7 time of access or '', then id and times.
local sees = visibility(ARGV[5])
local amount, at_time = ARGV[6], ARGV[7]
local counted = 0
for at = 8, #ARGV, 2 do
  local record = live(ARGV[at])
  if record and sees(record.bucket.owner) then
    local state = record.state
    if amount ~= '' then state[SALIENCE] = float(state[SALIENCE] + amount) end
    if at_time ~= '' then
      state[ACCESSES] = int(state[ACCESSES] + ARGV[at + 1])
      state[ACCESSED] = at_time
    end
    change(record)
    counted = counted + 1
  end
end
commit()
return counted
