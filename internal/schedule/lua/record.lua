-- record.lua: a delivery as one string. record.go reads the same.
--
-- 5 words while it waits for its first attempt, which is what most of a backlog
-- does; 21 once it has a history. Times are ms. The fields stay the strings that
-- they are in the record, because to print a number costs Lua 0.3 us and a record
-- has fifteen: whoever compares two as numbers says num() first.

local num = tonumber

-- Anything else is damaged, and treated as missing: it blocks nobody, and the
-- audit finds its places without a record.
local HEAD = '^([sldxc])([frd]) (%d+) (%d+) (%S+) (%S+)(.*)$'
local HISTORY = '^' .. string.rep(' (%d+)', 13) .. string.rep(' (%S+)', 3) .. '$'

local function decode(id, text)
  local st, ln, acc, exp, ev, sb, past = string.match(text, HEAD)
  if not st then return nil end
  local r = {
    id = id,
    st = st,                -- state: s scheduled, l leased, d delivered, x dead, c cancelled
    ln = ln,                -- lane: f fresh, r retry, d redrive
    acc = acc, exp = exp,   -- accepted_at, expires_at
    ev = ev, sb = sb,       -- event, subscriber
    due = acc,              -- next attempt
    at = '0',               -- attempts charged
    dc = '0',               -- delivery_count: leases ever taken, the fence
    se = '0',               -- highest fence at which a worker's verdict was applied
    rl = '0', ll = '0',     -- releases, lease losses
    rg = '0',               -- redrive_generation
    bb = '0', bu = '0',     -- where the generation's budget began, and how much it is
    fa = '0', la = '0',     -- when the first and the last attempt was leased, 0 for none
    en = '0',               -- when it became final
    hs = '0', oc = '-',     -- last HTTP status and outcome
    rs = '-',               -- reason of a dead one
    wk = '-',               -- worker that holds the lease
  }
  if past ~= '' then
    r.due, r.at, r.dc, r.se, r.rl, r.ll, r.rg, r.bb, r.bu, r.fa, r.la, r.en, r.hs, r.oc, r.rs, r.wk =
      string.match(past, HISTORY)
    if not r.due then return nil end
  end
  return r
end

local function encode(r)
  local head = r.st .. r.ln .. ' ' .. r.acc .. ' ' .. r.exp .. ' ' .. r.ev .. ' ' .. r.sb
  if r.st == 's' and r.dc == '0' and r.due == r.acc then return head end
  return table.concat({head, r.due, r.at, r.dc, r.se, r.rl, r.ll, r.rg, r.bb, r.bu, r.fa, r.la, r.en,
    r.hs, r.oc, r.rs, r.wk}, ' ')
end

local function record(id)
  local text = redis.call('GET', T .. 'd:' .. id)
  return text and decode(id, text)
end

local function save(r)
  redis.call('SET', T .. 'd:' .. r.id, encode(r))
end
