package api

// stackSize is how many bytes a request's goroutine has on its stack from the start:
// together with the bytes that it has used by then, this fills a stack of 16 KiB.
const stackSize = 12 << 10

// growStack grows the goroutine's stack to the needs of a request, before the request is
// looked at. HTTP/2 runs each request on a new goroutine. Its stack is small, and is copied
// to one of twice the size when a call doesn't fit, which costs the more the deeper the
// call is: 13 µs when policy was asked about the result of a lookup. That delay distinguished a
// hidden registration from an absent one (TRUST-014). Here there is little to copy, once.
//
//go:noinline
func growStack(at int) byte {
	var stack [stackSize]byte
	return stack[at%stackSize]
}
