package schedule

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Memory says how many bytes Redis uses, and how many it may: 0 without a limit. In a
// cluster all primaries together; one without a limit makes it none.
func (e *Engine) Memory(ctx context.Context) (used, limit int64, err error) {
	c, ok := e.rdb.(*redis.ClusterClient)
	if !ok {
		return memoryOf(ctx, e.rdb)
	}
	var mu sync.Mutex
	unlimited := false
	err = c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		u, l, err := memoryOf(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		used, limit, unlimited = used+u, limit+l, unlimited || l == 0
		return err
	})
	if unlimited {
		limit = 0
	}
	return used, limit, err
}

func memoryOf(ctx context.Context, node redis.Cmdable) (used, limit int64, err error) {
	text, err := node.Info(ctx, "memory").Result()
	if err != nil {
		return 0, 0, classify("info", err)
	}
	info := parseInfo(text)
	if used, err = strconv.ParseInt(info["used_memory"], 10, 64); err != nil {
		return 0, 0, fmt.Errorf("info: used_memory: %w", err)
	}
	limit, _ = strconv.ParseInt(info["maxmemory"], 10, 64) // a server that does not say has none
	return used, limit, nil
}
