package kinds_test

import "github.com/roster-mesh/roster/directory/directorytest"

var (
	alpha        = directorytest.Alpha
	rid          = directorytest.RID
	mustDocument = directorytest.Document
	mustProject  = directorytest.Project
	wantRefusal  = directorytest.WantRefusal
)
