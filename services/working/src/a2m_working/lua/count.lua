-- Add to salience, or count accesses. Returns how many records there were.
--
-- ARGV: 6 owners whose records the caller sees, 7 amount or '', 8 time of access or '', then id and times.
local sees = visibility(ARGV[6])
local amount, at_time = ARGV[7], ARGV[8]
local counted = 0
for at = 9, #ARGV, 2 do
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
