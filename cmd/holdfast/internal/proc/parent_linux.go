package proc

import "syscall"

// dieWithParent has the system kill the child process when this one ends in whatever way: one that is killed cannot do so itself.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
