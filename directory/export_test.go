package directory

// For tests in package directory_test: what is at rest is read for as long as there are
// snapshots.
var (
	RestWords      = restWords
	RestDictionary = restDictionary
)

const RestForm = restForm
