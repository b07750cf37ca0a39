"""`checklist`: is this cluster ready to go live?"""
