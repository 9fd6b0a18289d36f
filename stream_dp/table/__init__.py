"""`<stream>.table`: what a stream shows now, as one record a label, for whoever needs no history.

It is derived from the public releases alone, so it spends nothing, and it needs neither key nor Redis.
"""
