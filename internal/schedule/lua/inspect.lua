-- inspect.lua: whether deliveries stand where their records say, and nowhere else.
--
-- KEYS[1]  prefix of the partition
-- ARGV     id...
-- Returns  {id, what is wrong, ...}: only what is
--
-- It sees all of a delivery at one instant, so what it finds is no transition under way.
-- What can be wrong: no_record (it stands somewhere and has no record, or a damaged one),
-- no_place (it is scheduled and in no lane, or dead and in no list of the dead),
-- no_lease (it is leased and has no lease), not_pending (it is pending and not counted
-- as that), stray (it stands where it must not), claim (a cohort has it that does not know
-- of it, or is there no more: no other can have it, and nothing sends it).
local out = {}

local function say(id, what)
  out[#out + 1] = id
  out[#out + 1] = what
end

local function at(order, id) return redis.call('ZSCORE', T .. order, id) end

local function inspect(id)
  local r = record(id)
  if not r then
    -- Only who was sent here by a place asks for one without a record: see readers.
    if redis.call('EXISTS', T .. 'd:' .. id) == 1 or at('leases', id) or at('dead', id) then say(id, 'no_record') end
    return
  end
  local pending = r.st == 's' or r.st == 'l'
  for _, lane in ipairs(LANES) do
    local stands, must = at('q:' .. lane .. ':' .. r.sb, id), r.st == 's' and r.ln == lane
    if must and not stands then say(id, 'no_place') end
    if stands and not must then say(id, 'stray') end
  end
  local counted, leased = at('pend:' .. r.sb, id), at('leases', id)
  if pending and not counted then say(id, 'not_pending') end
  if counted and not pending then say(id, 'stray') end
  -- A lease outlives its delivery's end until its worker is heard of.
  if r.st == 'l' and not leased then say(id, 'no_lease') end
  if leased and (r.st == 's' or r.st == 'x') then say(id, 'stray') end
  local dead, of_its_own = at('dead', id), at('dead:' .. r.sb, id)
  if r.st == 'x' and not (dead and of_its_own) then say(id, 'no_place') end
  if r.st ~= 'x' and (dead or of_its_own) then say(id, 'stray') end
  local cohort = redis.call('HGET', T .. 'claims', id)
  if not cohort then return end
  local waits, sent = at('cohort:' .. cohort, id), at('out:' .. cohort, id)
  local there = r.st == 'x' and waits or pending and sent
  if not there or redis.call('EXISTS', T .. 'tally:' .. cohort) == 0 then say(id, 'claim') end
end

for _, id in ipairs(ARGV) do inspect(id) end
return out
