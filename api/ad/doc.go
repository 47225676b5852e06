// Package ad is the surface of draft-jimenez-agent-directory-01 under /ad, with the
// routes that this directory adds to it: a watch, the refresh of many registrations, and
// the transfer of ownership.
//
// # For readers who know the CoRE Resource Directory
//
// The Agent Directory comes from it (jimenez, appendix F). The correspondences:
//
//	Resource Directory (RFC 9176)            Agent Directory
//	endpoint name ep                         agent; unique in the directory, as there is no sector d
//	lifetime lt                              lt, in seconds; 86400 by default, 60 at least
//	base URI base                            the member base
//	registration resource, from POST /rd     /ad/r/{rid}, from POST /ad/r
//	links of a registration (con, rt, if)    capabilities, by cap_name, cap_type, tag: members of
//	                                         the registration, not resources with a URI of their own
//	update by POST, removal by DELETE        the same
//	endpoint lookup, resource lookup         one lookup, /ad/l; it lists agents, also when it is
//	                                         asked for a capability
//	page, count                              the same, and after, a cursor
//	link-format                              JSON
//	simple registration, groups              no counterpart
package ad
