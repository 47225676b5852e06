// Package limit bounds how much of something a node does. It doesn't know what is bounded:
// its users name callers and classes, and decide what a refusal says.
//
//   - Parallel runs work by one goroutine for each processor
//   - Shares divides a pool of places between callers: at a time, nothing waits
//   - Rates bounds how often something happens per key
//   - Lines samples the lines of a log per key
//   - Fair is a semaphore whose slots go to callers in turn
//   - Priority is a semaphore for work of several classes, the highest of which goes first
package limit
