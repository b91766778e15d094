package demo

import (
	"os/exec"
	"syscall"
)

// keepApart puts the child in a process group of its own, so that the Ctrl-C of
// a terminal reaches the service alone, which still has to settle. Should the
// service be killed, the kernel asks the child to end.
func keepApart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
