package demo

// keepRecent is how many ids are remembered. The play has a few hundred; what
// runs on for weeks afterwards must not grow for weeks.
const keepRecent = 20_000

// recent is a map that forgets its oldest keys. The zero value is empty.
type recent[V any] struct {
	values map[string]V
	order  []string
}

func (r *recent[V]) get(key string) V { return r.values[key] }

func (r *recent[V]) put(key string, v V) {
	if r.values == nil {
		r.values = map[string]V{}
	}
	if _, known := r.values[key]; !known {
		r.order = append(r.order, key)
	}
	r.values[key] = v
	if len(r.order) > keepRecent {
		delete(r.values, r.order[0])
		r.order = r.order[1:]
	}
}
