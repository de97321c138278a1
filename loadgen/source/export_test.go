package source

import "os"

// Process returns the process of the server.
func (a *APIServer) Process() *os.Process { return a.process.cmd.Process }
