package directory_test

import "github.com/roster-mesh/roster/directory/directorytest"

var (
	alpha        = directorytest.Alpha
	rid          = directorytest.RID
	hash         = directorytest.Hash
	mustIdentity = directorytest.Identity
	mustDocument = directorytest.Document
	wantRefusal  = directorytest.WantRefusal
)

const noon = directorytest.Noon
