package invoke_test

import "github.com/roster-mesh/roster/directory/directorytest"

var (
	rid          = directorytest.RID
	mustDocument = directorytest.Document
	mustProject  = directorytest.Project
)
