-- record.lua: a delivery as one string. record.go reads the same.
--
-- 4 words while it waits for its first attempt, which is what most of a backlog
-- does, if all is as usual; 5 if not, and 21 once it has a history. Times are ms. The fields stay the strings that
-- they are in the record, since most of them are only copied: whoever compares two as
-- numbers says num() first, and whoever changes one makes it a string again.

-- num reads a word. (Arithmetic reads a string as tonumber does, in a quarter of its
-- time: 0.05 us.)
local function num(word) return word + 0 end

-- Anything else is damaged, and treated as missing: it blocks nobody, and the
-- audit finds its places without a record.
local HEAD = '^([sldxc])([frd]) (%d+) (%d+) (%S+) (%S+)'
local WHOLE = HEAD .. string.rep(' (%d+)', 13) .. string.rep(' (%S+)', 3) .. '$'
HEAD = HEAD .. '$'

-- The usual one is short: sf and accepted_at, the seconds from there to expires_at,
-- event and subscriber without the prefixes of their ids. 75 bytes instead of 92 are one
-- size of the allocator less.
local SHORT = '^sf(%d+) (%d+) (%S+) (%S+)$'

-- unfold is a record in at least 5 words.
local function unfold(text)
  local acc, seconds, ev, sb = string.match(text, SHORT)
  if not acc then return text end
  return 'sf ' .. acc .. ' ' .. format('%d', acc + seconds * 1000) .. ' evt_' .. ev .. ' sub_' .. sb
end

-- fold is the record of a delivery before its first attempt, as short as it can be.
local function fold(acc, exp, ev, sb)
  local seconds = (exp - acc) / 1000
  local e, b = string.match(ev, '^evt_(%S+)$'), string.match(sb, '^sub_(%S+)$')
  if e and b and seconds % 1 == 0 then return 'sf' .. acc .. ' ' .. format('%d', seconds) .. ' ' .. e .. ' ' .. b end
  return 'sf ' .. acc .. ' ' .. exp .. ' ' .. ev .. ' ' .. sb
end

local function decode(id, text)
  text = unfold(text)
  local st, ln, acc, exp, ev, sb = string.match(text, HEAD)
  if st then
    return {
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
  end
  local due, at, dc, se, rl, ll, rg, bb, bu, fa, la, en, hs, oc, rs, wk
  st, ln, acc, exp, ev, sb, due, at, dc, se, rl, ll, rg, bb, bu, fa, la, en, hs, oc, rs, wk = string.match(text, WHOLE)
  if not st then return nil end
  return {
    id = id, st = st, ln = ln, acc = acc, exp = exp, ev = ev, sb = sb, due = due, at = at, dc = dc, se = se,
    rl = rl, ll = ll, rg = rg, bb = bb, bu = bu, fa = fa, la = la, en = en, hs = hs, oc = oc, rs = rs, wk = wk,
  }
end

local function encode(r)
  local head = r.st .. r.ln .. ' ' .. r.acc .. ' ' .. r.exp .. ' ' .. r.ev .. ' ' .. r.sb
  if r.st == 's' and r.dc == '0' and r.rg == '0' and r.due == r.acc then
    return r.ln == 'f' and fold(r.acc, r.exp, r.ev, r.sb) or head
  end
  return table.concat({head, r.due, r.at, r.dc, r.se, r.rl, r.ll, r.rg, r.bb, r.bu, r.fa, r.la, r.en,
    r.hs, r.oc, r.rs, r.wk}, ' ')
end

-- plus adds to a word.
local function plus(word, n)
  return format('%d', word + n)
end

local function record(id)
  local text = redis.call('GET', T .. 'd:' .. id)
  return text and decode(id, text)
end

local function save(r)
  redis.call('SET', T .. 'd:' .. r.id, encode(r))
end
