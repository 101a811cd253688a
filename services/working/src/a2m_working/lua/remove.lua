-- Delete records by id and etag ('' for any). Returns the outcome of each.
--
-- ARGV: 5 reason (forgotten, moved, undo), 6 target, 7 'all' (whole or nothing), 'each' or 'check' (nothing),
-- then id and etag.
local reason, target, mode = ARGV[5], ARGV[6], ARGV[7]
local outcomes, whole = {}, true
for at = 8, #ARGV, 2 do
  local record, wanted = live(ARGV[at]), ARGV[at + 1]
  local outcome
  if record then
    outcome = (wanted == '' or record.state[ETAG] == wanted) and 'deleted' or 'changed'
  else
    local stone = grave(ARGV[at])
    outcome = stone and stone[REASON] or 'absent'
  end
  whole = whole and outcome == 'deleted'
  outcomes[#outcomes + 1] = outcome
end
if mode == 'check' or mode == 'all' and not whole then return outcomes end

for position, outcome in ipairs(outcomes) do
  local record = outcome == 'deleted' and live(ARGV[6 + 2 * position])
  if record then
    local home, state = record.bucket, record.state
    remove(record)
    if reason ~= 'undo' then
      local moved = reason == 'moved'
      local key = state[KEY] ~= '' and '=' .. state[KEY] or '-'
      if moved then mark_elsewhere(home) end
      bury(record.id, {
        reason, int(math.max(now, state[SEQ])), int(state[MOVES] + (moved and 1 or 0)),
        home.owner, home.session, target, key,
      })
    end
  end
end
commit()
return outcomes
