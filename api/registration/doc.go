// Package registration finds, shows and changes single registrations, in the same way
// for all surfaces of package api. A surface brings a parser and a view.Surface.
//
// Reader finds the registration that a path names, among those that its caller may see.
// Writer parses writes, asks policy, proposes the change to the domain's leader, and answers:
//
//	proposal, err := writer.Parse(w, c, form)    // the form reads the surface's own: name and document
//	outcome, err := writer.Register(c, proposal) // authorised here, decided by the leader
//	return writer.Answer(w, c, surface, outcome) // 201 or 200 and the registration
//
// DELETE is Writer.Remove on every surface, because an id means the same everywhere.
package registration
