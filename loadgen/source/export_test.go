package source

// Disconnect closes all connections, like a network failure.
func (a *APIServer) Disconnect() { a.server.Disconnect() }

// Disconnect ends all watches, like a lost connection.
func (m *Memory) Disconnect() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watches {
		w.Stop()
	}
}
