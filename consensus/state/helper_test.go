package state

import (
	"io"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
)

var (
	alpha     = directorytest.Alpha
	beta      = directorytest.Beta
	ada       = directorytest.Ada
	bob       = directorytest.Bob
	tool      = directory.IdentityOf(spiffeid.RequireFromString("spiffe://alpha.test/tool/commissioner"))
	document  = directorytest.Translator
	problem   = directorytest.WantProblem
	alphaNode = directorytest.Node
)

// newer are the versions that a release reads that has a format 2 of pages and heads.
func newer() Versions {
	reads := older()
	reads.Formats = signed.Formats{signed.StructureHead: {1, 2}, signed.StructurePage: {1, 2}}

	return reads
}

// older are the versions that a release reads that has the first version of everything.
func older() Versions { return Versions{Log: 1, Snapshot: 1, Wire: 1} }

// readSnapshot reads a snapshot in one goroutine.
func readSnapshot(
	r io.Reader, domain spiffeid.TrustDomain, index *index.Index, h *Header,
) (s *State, err error) {
	s, *h, err = Read(r, domain, index, Parallel{})

	return s, err
}
