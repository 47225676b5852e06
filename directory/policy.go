package directory

// A Decision is policy's answer to one question, with the names of the policies
// that decided it.
type Decision struct {
	Allow    bool
	Policies []string
	// Sight is which members are seen, where the answer is yes and the question one
	// about a registration: read, or export.
	Sight Sight
}
