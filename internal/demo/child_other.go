//go:build !unix

package demo

import (
	"os/exec"
)

// keepApart does nothing: this system has no process groups.
func keepApart(*exec.Cmd) {}
