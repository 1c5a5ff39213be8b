// Put into a package of Go's: work in it, and its CPU time. The environment says how many loops it is in PACKAGE.
var burnLoops = func() int {
	text, _ := syscall.Getenv("BURN_PACKAGE")
	loops, _ := strconv.Atoi(text)
	return loops
}()
var BurntNs, BurntTimes atomic.Int64
var burnt int

//go:noinline
func burnFor(loops int) int {
	x := 1
	for i := 0; i < loops; i++ {
		x = x*3 + i
	}
	return x
}

func burnClock() int64 {
	var now syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 3, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

func burn() {
	before := burnClock()
	burnt = burnFor(burnLoops)
	// It may have moved to another thread meanwhile.
	if ns := burnClock() - before; ns > 0 && ns < 5e6 {
		BurntNs.Add(ns)
		BurntTimes.Add(1)
	}
}
