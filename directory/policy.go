package directory

// A Decision is policy's answer to one question, with the names of the policies
// that decided it.
type Decision struct {
	Allow    bool
	Policies []string
}
