//go:build unix && !linux

package demo

import (
	"os/exec"
	"syscall"
)

// keepApart puts the child in a process group of its own, so that the Ctrl-C of
// a terminal reaches the service alone, which still has to settle. Only Linux
// can be asked to end it with a service that is killed; here the lock that it
// holds tells the next start about it.
func keepApart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
