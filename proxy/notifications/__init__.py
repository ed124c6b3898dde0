"""Notifications: what an operator is told, as signed POSTs to an address of `[notify]`.

Owns: the forms of a message and its signature (`message`), where it goes (`target`), one POST (`delivery`), the program
that sends what the store has (`notifier`), and what is sent while the store is away (`store_trouble`). Refuses: what is
worth telling (`recorder.views.notices`), and the rows and their pace (`recorder.queue.notifications`).
"""
