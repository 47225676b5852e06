package index_test

import "github.com/roster-mesh/roster/directory/directorytest"

var (
	alpha        = directorytest.Alpha
	beta         = directorytest.Beta
	gamma        = directorytest.Gamma
	rid          = directorytest.RID
	mustDocument = directorytest.Document
	mustProject  = directorytest.Project
	wantRefusal  = directorytest.WantRefusal
)
