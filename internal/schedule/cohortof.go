package schedule

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// CohortOf returns the cohort that has a delivery, claimed or on its way; "" if none
// has. Errors: delivery.ErrBadID.
func (e *Engine) CohortOf(ctx context.Context, id string) (string, error) {
	p, err := e.partitionOfDelivery(id)
	if err != nil {
		return "", err
	}
	var cmd *redis.StringCmd
	err = e.read(ctx, "cohort of a delivery", func(pipe redis.Pipeliner) { cmd = pipe.HGet(ctx, e.parts[p]+"claims", id) })
	if err != nil {
		return "", err
	}
	return cmd.Val(), nil
}
