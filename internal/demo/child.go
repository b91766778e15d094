package demo

import (
	"os"
	"os/exec"
	"runtime"
)

// StartChild starts cmd apart from the terminal's Ctrl-C, so that whoever runs it
// decides when it ends; on Linux it also ends with this process, however that
// dies. The child has held as its open files 3, 4 and so on. What cmd.Wait says
// comes over the channel, once.
func StartChild(cmd *exec.Cmd, held ...*os.File) (<-chan error, error) {
	keepApart(cmd)
	cmd.ExtraFiles = held
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		// The kernel ends the child with the thread that made it, not with the
		// process; so that thread is kept for as long.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return ended, <-started
}
