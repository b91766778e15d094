package main

import (
	"context"
)

func serveMain(args []string) error      { return nil }
func dispatcherMain(args []string) error { return nil }
func (s *stack) profile(ctx context.Context) func() error {
	return func() error { return nil }
}
func (s *store) used(ctx context.Context) (float64, error) { return 0, nil }
func (b *bench) ingest(ctx context.Context) error          { return nil }
func (b *bench) memory(ctx context.Context) error          { return nil }
func (b *bench) match(ctx context.Context) error           { return nil }
