package redrive

import "context"

// Live reads the cohorts that have not ended, with their counts, in the order in which they
// were made. Their canaries are left out of the views; CanaryIDs has them.
func (s *Service) Live(ctx context.Context) ([]View, error) {
	cohorts, err := s.store.live(ctx)
	if err != nil {
		return nil, err
	}
	var out []View
	for _, c := range cohorts {
		if c.State.Final() {
			continue // ended, and not cleared away yet
		}
		tally, err := s.letters.Tally(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		out = append(out, View{Cohort: c, Tally: tally})
	}
	return out, nil
}
