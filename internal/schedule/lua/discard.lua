-- discard.lua: forget dead letters, evidence and payload too, because an operator said
-- so.
--
-- KEYS[1]  prefix of the partition
-- ARGV     id...
-- Returns  a word per delivery: discarded, claimed (a cohort has it), not_dead, missing
--
-- The ledger stays as it is: `dead` counts how deliveries ended, not what is kept.
-- Run twice, the second run finds them gone.
local out = {}
for _, id in ipairs(ARGV) do
  local r = record(id)
  if not r then
    out[#out + 1] = 'missing'
  elseif r.st ~= 'x' then
    out[#out + 1] = 'not_dead'
  elseif redis.call('HEXISTS', T .. 'claims', id) == 1 then
    out[#out + 1] = 'claimed'
  else
    forget(id, r)
    out[#out + 1] = 'discarded'
  end
end
return out
