package schedule_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/schedule"
	"github.com/fanout/fanout/test/redistest"
)

// Random sequences of all transitions, some run twice, on Redis and beside it on a
// model: a few maps and the rules of docs/state-machine.md and docs/holds.md in plain
// Go. After each step every record and every subscriber must be what the model says,
// and the raw keys must pass the audit. Whatever the model says can be leased, is:
// nothing is stranded, and in the end everything is delivered.
func TestModel(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		rapid.Check(t, func(rt *rapid.T) {
			if err := redistest.Flush(t.Context(), rdb); err != nil {
				t.Fatal(err)
			}
			m := newModel(newWorld(t, rdb, schedule.Options{Quantum: 2, InitialCap: modelCap}), rt)
			for range rapid.IntRange(5, 40).Draw(rt, "steps") {
				m.step()
			}
			m.drain()
		})
	})
}

// model is what should be.
type model struct {
	*world
	rt     *rapid.T
	now    time.Time
	all    map[string]*delivery.Delivery
	until  map[string]time.Time // open leases, by delivery
	at     map[string]time.Time // when the last one was taken
	subs   map[string]*oracle
	names  []string
	given  []schedule.Leased // leases ever handed out, settled ones too
	events int
	claims map[string]string // dead letters, and what became of them, by cohort
	// last is worker a's last lease call that gave something.
	last struct {
		seq    int64
		leased []schedule.Leased
	}
}

func newModel(w *world, rt *rapid.T) *model {
	m := &model{
		world: w, rt: rt, now: time.UnixMilli(1_800_000_000_000).UTC(),
		all: map[string]*delivery.Delivery{}, until: map[string]time.Time{}, at: map[string]time.Time{},
		claims: map[string]string{}, subs: map[string]*oracle{}, names: []string{"sub_1", "s2", "sub_3"},
	}
	w.ok(w.FreezeTestClock(w.ctx, m.now))
	for _, s := range m.names {
		tm := m.terms()
		tm.Paused = false
		_, err := w.PutConfig(w.ctx, s, 0, []byte("{}"), tm, schedule.Edited)
		w.ok(err)
		m.subs[s] = newOracle(s, tm)
	}
	return m
}

// terms draws those of a subscriber.
func (m *model) terms() schedule.Terms {
	rates := []float64{0, 0, 0, 4, 0.25}
	return schedule.Terms{
		Class: rapid.SampledFrom([]string{"standard", "gold"}).Draw(m.rt, "class"), LeaseTime: terms.LeaseTime,
		MaxInFlight: rapid.IntRange(1, 4).Draw(m.rt, "max_in_flight"), BreakerFailures: rapid.IntRange(1, 3).Draw(m.rt, "failures"),
		RatePerSecond: rapid.SampledFrom(rates).Draw(m.rt, "rate"), Burst: rapid.IntRange(1, 3).Draw(m.rt, "burst"),
		MaxHeld: rapid.SampledFrom([]int{1, 4, 100}).Draw(m.rt, "max_held"),
		Paused:  rapid.IntRange(0, 2).Draw(m.rt, "paused") == 0,
	}
}

// step does one thing to both, and compares.
func (m *model) step() {
	steps := map[string]func(){
		"post": m.post, "lease": m.lease, "lease again": m.leaseAgain, "settle": m.settleOne, "release": m.releaseOne,
		"pass": m.pass, "expire": m.expire, "config": m.config, "delete": m.deleteOne, "claim": m.claim, "redrive": m.redrive, "unclaim": m.unclaim,
	}
	often := []string{
		"post", "post", "lease", "lease", "lease again", "settle", "settle", "settle", "release", "pass", "expire",
		"config", "delete", "claim", "redrive", "redrive", "unclaim",
	}
	name := rapid.SampledFrom(often).Draw(m.rt, "step")
	steps[name]()
	m.compare(name)
}

// compare holds every record against the model's.
func (m *model) compare(step string) {
	m.Helper()
	for id, want := range m.all {
		got := m.get(id).Delivery
		// The model has no opinion on these.
		got.AcceptedAt, got.FirstAttemptAt, got.LastAttemptAt, got.EndedAt = want.AcceptedAt, want.FirstAttemptAt, want.LastAttemptAt, want.EndedAt
		if want.State != delivery.Scheduled {
			got.DueAt = want.DueAt
		}
		if got != *want {
			m.rt.Fatalf("after %q at %s:\n got %+v\nwant %+v", step, m.now, got, *want)
		}
	}
	m.count()
	standings, err := m.Standings(m.ctx, m.names)
	m.ok(err)
	for i, name := range m.names {
		if diff := m.subs[name].compare(standings[i], m.now); diff != "" {
			m.rt.Fatalf("after %q at %s, %s of %s:\n got %+v\nwant %+v", step, m.now, diff, name, standings[i], *m.subs[name])
		}
	}
	m.audit()
}

// count counts each subscriber's leases and pending deliveries.
func (m *model) count() {
	for _, s := range m.subs {
		s.leases, s.pending, s.delivered, s.dead = 0, 0, 0, 0
	}
	for id, d := range m.all {
		s := m.subs[d.SubscriberID]
		if _, leased := m.until[id]; leased {
			s.leases++
		}
		if d.State == delivery.Scheduled || d.State == delivery.Leased {
			s.pending++
		}
		if d.State == delivery.Delivered {
			s.delivered++
		}
		if d.State == delivery.Dead {
			s.dead++
		}
	}
}

func (m *model) post() {
	m.events++
	event := fmt.Sprint([]string{"e", "evt_"}[m.events%2], m.events) // short records and whole ones
	to := rapid.SliceOfNDistinct(rapid.SampledFrom(m.names), 1, 3, rapid.ID).Draw(m.rt, "to")
	for range rapid.IntRange(1, 2).Draw(m.rt, "times") {
		m.world.post(event, to...)
	}
	m.count()
	for _, name := range to {
		d := delivery.New(event, name, m.now, day)
		s := m.subs[name]
		switch {
		case s.deleted:
			d.State = delivery.Cancelled
		case len(s.holds(m.now)) > 0 && s.pending >= s.terms.MaxHeld:
			d.State = delivery.Dead
		}
		m.all[d.ID] = &d
	}
}

// leasable is how many deliveries a lease call with enough room must give: it
// leaves none of them behind.
func (m *model) leasable() (n int) {
	m.count()
	for _, s := range m.subs {
		n += s.may(len(m.due(s.id)), m.now)
	}
	return n
}

// due are the deliveries of a subscriber that wait for nothing but their turn.
func (m *model) due(sub string) []string {
	var ids []string
	for id, d := range m.all {
		if d.SubscriberID == sub && d.State == delivery.Scheduled && !d.DueAt.After(m.now) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (m *model) lease() {
	worker := rapid.SampledFrom([]string{"a", "b"}).Draw(m.rt, "worker")
	want := rapid.IntRange(1, 6).Draw(m.rt, "room")
	must := min(want, m.leasable())
	got := m.world.lease(worker, room(want)).Leased
	if len(got) != must {
		m.rt.Fatalf("leased %d with room for %d, want %d", len(got), want, must)
	}
	for _, l := range got {
		d, s := m.all[l.ID], m.subs[l.SubscriberID]
		due := m.due(s.id)
		m.count()
		if !slices.Contains(due, l.ID) || s.may(len(due), m.now) < 1 {
			m.rt.Fatalf("leased %+v of %+v at %s", d, s, m.now)
		}
		if !s.open.IsZero() && s.last == l.ID && len(due) > 1 {
			m.rt.Fatalf("%s is the probe twice running, with %v due", l.ID, due)
		}
		d.State, d.DeliveryCount, d.Attempts = delivery.Leased, d.DeliveryCount+1, d.Attempts+1
		m.until[l.ID], m.at[l.ID] = m.now.Add(terms.LeaseTime), m.now
		s.leased(l.ID, m.now)
	}
	m.given = append(m.given, got...)
	if worker == "a" && len(got) > 0 {
		m.last.seq, m.last.leased = m.seq["a"], got
	}
}

// leaseAgain asks with a's last seq, as after a lost reply: it gets what it still
// holds of that lease, and nothing changes.
func (m *model) leaseAgain() {
	if m.last.seq != m.seq["a"] || m.last.seq == 0 {
		return // its last call gave nothing: nothing is remembered
	}
	var want []string
	for _, l := range m.last.leased {
		if d := m.all[l.ID]; d.State == delivery.Leased && d.DeliveryCount == l.Fence() {
			want = append(want, l.ID)
		}
	}
	m.unchanged("a repeated lease", func() {
		var got []string
		for _, l := range m.leaseAt("a", m.last.seq, anyRoom).Leased {
			got = append(got, l.ID)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			m.rt.Fatalf("repeated lease gave %v, want %v", got, want)
		}
	})
}

func (m *model) settleOne() {
	if len(m.given) == 0 {
		return
	}
	l := rapid.SampledFrom(m.given).Draw(m.rt, "of")
	v := map[string]schedule.Verdict{
		"delivered": delivered(l), "soon": retry(l, m.now), "later": retry(l, m.now.Add(time.Minute)),
		"dead": dead(l, "{}"), "lost": lost(l, m.now), "lost for good": lost(l, m.now),
		"rejected": failed(l, delivery.HTTP400), "gone": gone(l),
		"throttled": throttled(l, rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(m.rt, "wait")),
	}
	kind := rapid.SampledFrom([]string{
		"delivered", "delivered", "soon", "soon", "later", "dead", "lost", "lost for good", "rejected", "throttled", "gone",
	}).Draw(m.rt, "verdict")
	verdict := v[kind]
	if verdict.Reclaim { // as Decide has it
		verdict.GiveBack = m.all[l.ID].LeaseLosses < delivery.MaxLeaseLosses
		if kind == "lost for good" {
			verdict.Decision = delivery.Decision{Next: delivery.Dead, Reason: delivery.Exhausted, GiveBack: verdict.GiveBack}
			verdict.Body = &schedule.Body{}
		}
	}
	verdict.Took = rapid.SampledFrom([]time.Duration{0, 20 * time.Millisecond, 5 * time.Second}).Draw(m.rt, "took")
	want := m.apply(verdict)
	m.world.settle(want, verdict)
	if rapid.Bool().Draw(m.rt, "twice") {
		m.compare("settle") // takes over how long a breaker rests, before the next draw
		m.world.settle(m.apply(verdict), verdict)
	}
}

// apply is settle.lua in ten rules.
func (m *model) apply(v schedule.Verdict) schedule.SettleResult {
	d := m.all[v.ID]
	until, leased := m.until[v.ID]
	atFence := v.Fence == d.DeliveryCount
	if v.Reclaim {
		if !atFence || !leased {
			return schedule.Stale
		}
		if until.After(m.now) {
			return schedule.NotExpired
		}
	}
	s := m.subs[d.SubscriberID]
	if atFence && leased {
		delete(m.until, v.ID)
		probe := s.ended(v.ID, m.now)
		s.observe(v, m.at[v.ID], probe, m.now)
	}
	if atFence && d.State == delivery.Leased {
		m.verdict(d, v)
		return schedule.Applied
	}
	final := d.State == delivery.Delivered || d.State == delivery.Cancelled
	switch {
	case v.Next == delivery.Delivered && !final:
		delete(m.claims, d.ID)
		d.State, d.Settled = delivery.Delivered, max(d.Settled, v.Fence)
		d.LastOutcome, d.LastStatus = delivery.OK, v.Status
		s.observe(v, time.Time{}, false, m.now)
		return schedule.AppliedOld
	case final || v.Fence <= d.Settled:
		return schedule.Already
	}
	return schedule.Stale
}

// verdict ends the lease that the delivery is at.
func (m *model) verdict(d *delivery.Delivery, v schedule.Verdict) {
	d.State, d.LastOutcome, d.LastStatus = v.Next, v.Outcome, v.Status
	if v.Reclaim {
		d.LeaseLosses++
	} else {
		d.Settled = v.Fence
	}
	if v.GiveBack {
		d.Attempts--
	}
	if v.Next != delivery.Scheduled {
		delete(m.claims, d.ID)
		return
	}
	d.DueAt = v.DueAt
	if d.Lane == delivery.Fresh {
		d.Lane = delivery.Retry
	}
}

// anyOf draws the id of a delivery, if there are any.
func (m *model) anyOf(states ...delivery.State) []string {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(m.all)) {
		if slices.Contains(states, m.all[id].State) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 1, min(3, len(ids)), rapid.ID).Draw(m.rt, "ids")
}

func (m *model) cohort() string {
	return rapid.SampledFrom([]string{"rdv_1", "rdv_2"}).Draw(m.rt, "cohort")
}

// claim asks for any deliveries; a cohort gets those dead letters that none has.
func (m *model) claim() {
	cohort := m.cohort()
	ids := m.anyOf(delivery.Dead, delivery.Dead, delivery.Delivered, delivery.Scheduled)
	for range rapid.IntRange(1, 2).Draw(m.rt, "times") {
		got, err := m.Claim(m.ctx, cohort, ids)
		m.ok(err)
		for i, id := range ids {
			want := schedule.Claimed
			switch by := m.claims[id]; {
			case by != "" && by != cohort:
				want = schedule.Taken
			case by == "" && m.all[id].State != delivery.Dead:
				want = schedule.NotDead
			default:
				m.claims[id] = cohort
			}
			if got[i] != want {
				m.rt.Fatalf("claim of %s by %s: %s, want %s", id, cohort, got[i], want)
			}
		}
	}
}

// redrive releases any deliveries: those dead letters that the cohort has.
func (m *model) redrive() {
	cohort, budget := m.cohort(), rapid.IntRange(1, 3).Draw(m.rt, "budget")
	ids := m.anyOf(delivery.Dead, delivery.Scheduled)
	if next, err := m.NextOfCohort(m.ctx, cohort, 2); len(next) > 0 && rapid.Bool().Draw(m.rt, "its own") {
		m.ok(err)
		ids = next
	}
	for range rapid.IntRange(1, 2).Draw(m.rt, "times") {
		got, err := m.Redrive(m.ctx, cohort, budget, day, ids)
		m.ok(err)
		for i, id := range ids {
			d := m.all[id]
			want := schedule.Released
			switch {
			case m.claims[id] != cohort:
				want = schedule.Over
			case d.State != delivery.Dead:
				want = schedule.Before
			case m.subs[d.SubscriberID].deleted:
				want = schedule.Over
				delete(m.claims, id)
			default:
				d.State, d.Lane, d.DueAt, d.ExpiresAt = delivery.Scheduled, delivery.Redrive, m.now, m.now.Add(day)
				d.RedriveGeneration, d.BudgetBase, d.Budget = d.RedriveGeneration+1, d.Attempts, budget
			}
			if got[i] != want {
				m.rt.Fatalf("redrive of %s by %s: %s, want %s", id, cohort, got[i], want)
			}
		}
	}
}

// unclaim lets go of all that a cohort has not released.
func (m *model) unclaim() {
	cohort := m.cohort()
	want := 0
	for id, by := range m.claims {
		if by == cohort && m.all[id].State == delivery.Dead {
			delete(m.claims, id)
			want++
		}
	}
	got, err := m.Unclaim(m.ctx, cohort, 1000)
	m.ok(err)
	if got != want {
		m.rt.Fatalf("%s let go of %d, want %d", cohort, got, want)
	}
}

func (m *model) releaseOne() {
	if len(m.given) == 0 {
		return
	}
	l := rapid.SampledFrom(m.given).Draw(m.rt, "of")
	for range rapid.IntRange(1, 2).Draw(m.rt, "times") {
		m.ok(m.Release(m.ctx, 0, []schedule.Claim{{ID: l.ID, Fence: l.Fence()}}))
		m.modelRelease(l)
	}
}

func (m *model) modelRelease(l schedule.Leased) {
	d := m.all[l.ID]
	if d.DeliveryCount != l.Fence() {
		return
	}
	if _, leased := m.until[l.ID]; leased {
		delete(m.until, l.ID)
		m.subs[d.SubscriberID].ended(l.ID, m.now)
	}
	if d.State == delivery.Leased {
		d.State, d.Attempts, d.Releases = delivery.Scheduled, d.Attempts-1, d.Releases+1
	}
}

func (m *model) pass() {
	by := rapid.SampledFrom([]time.Duration{
		time.Millisecond, 300 * time.Millisecond, time.Second, 5 * time.Second, time.Minute, time.Minute, 9 * time.Hour,
	}).Draw(m.rt, "by")
	m.now = m.now.Add(by)
	m.ok(m.FreezeTestClock(m.ctx, m.now))
}

// expire buries all that waits past its time, and only that.
func (m *model) expire() {
	want := map[string]bool{}
	for id, d := range m.all {
		if d.State == delivery.Scheduled && !d.ExpiresAt.After(m.now) {
			want[id] = true
		}
	}
	m.count()
	var vs []schedule.Verdict
	ds, _, err := m.ExpiredDeliveries(m.ctx, 1000)
	m.ok(err)
	for _, d := range ds {
		if !want[d.ID] {
			m.rt.Fatalf("%s is listed as expired: %+v", d.ID, m.all[d.ID])
		}
		delete(want, d.ID)
		vs = append(vs, schedule.Verdict{ID: d.ID, Body: &schedule.Body{}})
		m.all[d.ID].State = delivery.Dead
		delete(m.claims, d.ID)
	}
	for id := range want {
		// A leased head of the same subscriber may hide it, for a second at most.
		if m.subs[m.all[id].SubscriberID].leases == 0 {
			m.rt.Fatalf("%s expired and is not listed: %+v", id, m.all[id])
		}
	}
	for range rapid.IntRange(1, 2).Draw(m.rt, "times") {
		_, err = m.Expire(m.ctx, 0, vs)
		m.ok(err)
	}
}

func (m *model) config() {
	name := rapid.SampledFrom(m.names).Draw(m.rt, "subscriber")
	s := m.subs[name]
	if s.deleted {
		return
	}
	tm := m.terms()
	change := rapid.SampledFrom([]schedule.Change{
		schedule.Edited, schedule.Edited, schedule.Lifted, schedule.Lifted, schedule.Moved,
	}).Draw(m.rt, "change")
	_, err := m.PutConfig(m.ctx, name, -1, []byte("{}"), tm, change)
	m.ok(err)
	s.configure(tm, change, m.now)
}

// deleteOne deletes s3, and cancels some of what it has pending, the soonest to
// expire first; all of it if asked again often enough.
func (m *model) deleteOne() {
	if rapid.IntRange(0, 4).Draw(m.rt, "rarely") != 0 {
		return
	}
	m.subs["sub_3"].deleted = true
	m.ok(m.Tombstone(m.ctx, "sub_3", ""))
	m.cancelAll("sub_3", rapid.IntRange(1, 3).Draw(m.rt, "limit"))
	for id, d := range m.all { // which ones is the engine's choice
		if d.SubscriberID == "sub_3" && m.get(id).State == delivery.Cancelled &&
			(d.State == delivery.Scheduled || d.State == delivery.Leased) {
			d.State = delivery.Cancelled
			delete(m.claims, id)
		}
	}
}

// drain brings everything to its end: what is left can be worked off.
func (m *model) drain() {
	for name, s := range m.subs {
		if s.deleted {
			m.cancelAll(name, 1000)
			continue
		}
		_, err := m.PutConfig(m.ctx, name, -1, []byte("{}"), terms, schedule.Lifted)
		m.ok(err)
	}
	for range 100 {
		m.now = m.now.Add(10 * time.Minute)
		m.ok(m.FreezeTestClock(m.ctx, m.now))
		leases, now, err := m.ExpiredLeases(m.ctx, 100)
		m.ok(err)
		for _, l := range leases {
			if l.State != delivery.Leased {
				m.ok(m.Release(m.ctx, 0, []schedule.Claim{{ID: l.ID, Fence: l.Fence()}}))
			} else {
				m.world.settle(schedule.Applied, lost(l, now))
			}
		}
		for _, l := range m.world.lease("drain", anyRoom).Leased {
			m.world.settle(schedule.Applied, delivered(l))
		}
		if s, err := m.Sample(m.ctx, nil); err == nil && s.Ledger.Pending == 0 && s.Leases == 0 {
			m.audit()
			return
		}
	}
	m.rt.Fatalf("stranded: %+v\n%v", m.ledger(), m.dump())
}
