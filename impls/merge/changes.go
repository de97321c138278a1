package merge

// changes are the changed pods of an update, by notification.
type changes[P any] struct {
	by       [RECONCILE + 1][]P
	n        int  // number of changes
	firstSet bool // it is the first SET of a source
}

func (c *changes[P]) add(op Op, pod P) {
	c.by[op] = append(c.by[op], pod)
	c.n++
}

// notify calls send for each notification, in kubelet's order. Its mode is
// PodConfigNotificationIncremental, the only one that kubelet uses.
func (c *changes[P]) notify(send func(Op, []P)) {
	ready := c.firstSet
	for _, op := range [...]Op{REMOVE, ADD, UPDATE, DELETE} {
		if len(c.by[op]) > 0 {
			send(op, c.by[op])
			ready = ready && op == REMOVE
		}
	}
	if ready {
		send(ADD, nil)
	}
	if len(c.by[RECONCILE]) > 0 {
		send(RECONCILE, c.by[RECONCILE])
	}
}

// reset empties the changes and keeps their arrays.
func (c *changes[P]) reset() {
	c.n, c.firstSet = 0, false
	for i, pods := range c.by {
		if len(pods) > 0 {
			clear(pods)
			c.by[i] = pods[:0]
		}
	}
}
