package testserver

import (
	"os/exec"
	"syscall"
)

// EndWithTest has a command that is not started yet killed (SIGKILL) when the test process ends, however it ends; on Linux. The command must be started by a
// goroutine that does not end the thread that it is locked to, if it is locked to one.
func EndWithTest(c *exec.Cmd) {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
