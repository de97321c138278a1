package pace

func (c *precise) usesTimerfd() bool { return !c.failed && c.file != nil }
