package main

import "context"

type devCmd struct{}

func (c *devCmd) Run(ctx context.Context) error { return nil }
