// Package memory keeps a process within the memory that it was given.
//
// # The limit
//
// The Go runtime collects more often as it comes near its memory limit, which it doesn't
// find out by itself. [Govern] sets it: to 90 % of the lowest limit of the process's
// cgroup and those above it, and to at most 75 % of the machine's memory. The rest is
// for memory that the runtime doesn't count, which is mostly mapped files, and on a
// machine for other processes. If GOMEMLIMIT is set, it wins.
//
// # The growth of the heap
//
// GOGC is the growth of the heap before a collection, in percent of the live heap. One
// value doesn't fit a node. With 10^6 registrations 1.6 GB are live, and the heap may
// grow by 90 % if the node is to stay under 3 GB. With a few thousand 30 MB are live,
// and a collection each 27 MB takes several percent of the processor's time. So GOGC is
// set after each collection: the heap grows by 90 %, or by 128 MiB if that is more. If
// GOGC is set by the operator, it wins.
//
// The collector's share of the processor time under lookups and refreshes by 16 clients,
// with 20,000 registrations (scenarios/load, section million; two cores):
//
//	GOGC=90                       3.3 %
//	GOGC=200                      1.6 %
//	GOGC=400                      .5 %   and 8 GB with 10^6
//	GOGC=90 and 140 MB of ballast .5 %   the ballast counts as live, and as used memory
//	                                     against the limit, though it is not
//	this package                  .3 to .8 %, as noise has it
package memory
