//go:build cgo

package memory

/*
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>

// It runs before the Go runtime begins, since arenas that threads have got are not given back.
__attribute__((constructor)) static void few_arenas(void) {
	if (getenv("MALLOC_ARENA_MAX") == NULL) {
		mallopt(M_ARENA_MAX, 2);
	}
}
#endif
*/
import "C"
